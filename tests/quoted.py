"""What figures of the papers quote."""

import re


def published(figure):
    """The statements, but for numbers, which may depend on the scale."""
    return [re.sub(r"\d[\d.^-]*(, \d+)*", "#", claim.published) for claim in figure.claims]
