"""The engine: carries events to the scheduler and runs the actions that it returns; decides nothing."""
