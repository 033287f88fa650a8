"""Control flow as instructions: `emit_control_flow` takes any control-flow call."""
