"""The published statements that figures of reproduce quote."""

import re


def published(figure):
    """The statements that a figure quotes, with `#` for each number: numbers may depend on the scale."""
    return [re.sub(r"\d[\d.^-]*(, \d+)*", "#", claim.published) for claim in figure.claims]
