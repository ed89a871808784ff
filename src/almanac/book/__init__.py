"""The outer ring: what is pending, as a table (rules 3, 4, 5 and 10 in Spark SQL).

session   the Spark session, with the settings that everything here relies on
decoders  what a wire format's headers say, as SQL expressions
fold      what a batch of records says about each key, as SQL
table     the book: the Delta table, its MERGE, its offsets
fired     what fired: a second table, and its marks
ingest    the stream from Kafka into both
pages     what falls due soon, as one sorted Parquet file per shard
read      reads for people, without Spark; search: page by page, and counts; spans: in which files
trust     whether a book is to be used at all, without Spark too
places    folders, on whatever file system they are
"""
