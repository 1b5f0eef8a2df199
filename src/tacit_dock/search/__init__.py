"""Finding learnwares by a task's specification."""
