"""The outer ring: what is pending, as a table (rules 3, 4, 5 and 10).

session   the Spark session, with the settings that everything here relies on
stretch   a part of a partition's log, as a task reads it
fold      what a stretch says about each key; columns: its rows as Arrow has them
known     what the book has of these keys, without Spark
worker    what a task does: stretches to Parquet; apart: in a process that ends with it
batch     what all tasks made of a batch, as Spark sees it; sql: values in Spark's SQL
state     what state a row is in, as SQL
table     the book: the Delta table, how a batch takes its place in it, its offsets
fired     what fired: a second table, and its marks
ingest    the stream from Kafka into both
pages     what falls due soon, as one sorted Parquet file per shard
read      reads for people, without Spark; search: page by page, and counts; spans: in which files
trust     whether a book is to be used at all, without Spark too
places    folders, on whatever file system they are
"""
