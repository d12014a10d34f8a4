"""Files in buckets: `gs://`, `s3://` and every other URL that fsspec supports."""
