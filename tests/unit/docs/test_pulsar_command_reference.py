import runpy
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "pulsar_command_reference.py"


def test_the_page_of_pulsar_commands_is_what_the_handlers_say() -> None:
    tool = runpy.run_path(str(TOOL))
    assert tool["FILE"].read_text() == tool["render"](), (
        f"run `make generate` ({TOOL.name}) and commit the page"
    )
