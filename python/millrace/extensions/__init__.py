"""Parts that the core runs without: packs, workflows, views of runs, simulation, checks of tools."""
