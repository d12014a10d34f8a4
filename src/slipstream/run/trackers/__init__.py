"""Experiment trackers that a job uses: they get the receipt of its run, too.

tracking       which trackers, when, and in which thread
tracked        what they get: metrics, texts and files of a receipt
report         the report of its recordings, which the launcher makes
tensorboard    a run of its own in the job's log folder, and profiles for XProf
wandb, mlflow  the job's active run
"""
