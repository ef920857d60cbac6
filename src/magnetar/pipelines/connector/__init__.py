"""The data source `magnetar`: Spark calls it to read topics and to write to them."""
