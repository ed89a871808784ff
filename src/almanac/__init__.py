"""Almanac delivers a Kafka message to a topic of your choice at a time of your choice: exactly once, never early."""

__version__ = "0.1.0"
