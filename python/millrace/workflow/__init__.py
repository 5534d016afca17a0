"""Several tools in one job: what each phase reads of the others, who gets which slots, one resume and one exit code."""
