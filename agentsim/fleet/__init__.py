"""Many agents on one deployment: how they come, what they must meet, what becomes of them."""
