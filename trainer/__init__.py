"""The companion trainer's room: sync strategies, codecs, parallelism, models and the loop."""
