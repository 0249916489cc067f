"""Built-in coders of the codec. Each module is imported when an array of its library is first stored or restored."""
