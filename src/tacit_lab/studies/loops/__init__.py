"""What private loops of several makers learn at equal guarantee and equal tuning."""
