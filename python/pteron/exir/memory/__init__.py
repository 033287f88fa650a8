"""Where each tensor of a method lives in planned memory."""
