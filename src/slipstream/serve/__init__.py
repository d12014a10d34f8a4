"""The viewer: profiles of any size in a browser, drawn from tiles that are computed on demand."""
