"""`python -m tidepool_kubectl`, where the command is not installed."""

from tidepool_kubectl.cli import app

app(prog_name="kubectl tidepool")
