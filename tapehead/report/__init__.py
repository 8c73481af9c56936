"""The report: one HTML file with tables, figures and claims, from a folder of results, without training."""
