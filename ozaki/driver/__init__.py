"""One product from its facts to its report, and who wants to know what runs."""
