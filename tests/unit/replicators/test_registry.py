"""Which providers there are, and that none is imported before it is used."""

import subprocess
import sys

import pytest

from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.registry import PROVIDERS, find_provider, known_types


@pytest.mark.parametrize("name", PROVIDERS)
def test_each_of_ours_is_where_the_table_says(name: str) -> None:
    assert find_provider(name).type == name
    assert name in known_types()


@pytest.mark.parametrize(
    ("name", "said"), [("kafka", "did you mean Kafka?"), ("Zzz", "there are DynamoDB, Kafka")]
)
def test_an_unknown_type_says_what_there_is(name: str, said: str) -> None:
    with pytest.raises(ReplicatorConfigError, match=said):
        find_provider(name)


def test_a_server_that_validates_imports_no_client_library() -> None:
    program = (
        "import sys; from magnetar.replicators.policies import ReplicatorPolicies;"
        "from magnetar.replicators.registry import PROVIDERS, find_provider\n"
        "for name in PROVIDERS:\n"
        "    try: find_provider(name).validate_properties('public/default', ReplicatorPolicies('r'))\n"
        "    except ValueError: raise\n"
        "    except Exception as error: assert 'needs the property' in str(error), error\n"
        "print(sorted({'boto3', 'botocore', 'confluent_kafka', 'pulsar', 'pyarrow', 'pyspark'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
