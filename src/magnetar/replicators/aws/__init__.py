"""What providers for services of AWS have in common: its address, the credentials, and what its errors mean."""
