"""Results whose every entry is the float nearest to the true one, so that no processor shows in their bits."""
