"""The data source `magnetar`: what Spark calls to read topics and to write into them."""
