"""The numbers behind pictures and reports, without any drawing."""
