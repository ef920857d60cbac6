"""RSA keys for all unit tests: each takes a tenth of a second to make, and every worker imports every module."""

from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

RSA: Final = rsa.generate_private_key(65537, 2048)
OTHER_RSA: Final = rsa.generate_private_key(65537, 2048)
