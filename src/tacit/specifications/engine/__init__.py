"""One gradient step on a frozen backbone, a record at a time: clipped, averaged, with noise."""
