"""What a person sees: results as Rich renderables. Nothing here computes or prints."""
