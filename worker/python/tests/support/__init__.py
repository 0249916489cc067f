"""What the tests of all layers share."""
