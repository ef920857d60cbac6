"""What providers for services of AWS have in common: where a service is, who writes, and what its errors mean."""
