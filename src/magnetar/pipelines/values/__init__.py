"""What values of a topic say, as columns of its schema; knows neither Spark nor the broker."""
