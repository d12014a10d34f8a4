"""What a training script calls: optimize and capture."""
