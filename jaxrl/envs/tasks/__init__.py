"""The environments of the package; the others are Brax's and Gymnasium's."""
