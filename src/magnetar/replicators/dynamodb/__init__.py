"""The provider `DynamoDB`: records become items of a table of Amazon DynamoDB."""
