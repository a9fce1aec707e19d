"""Images of observations."""

import numpy as np

from jaxrl.rendering import obs_image


def test_pixels_are_enlarged():
    seen = np.zeros((3, 10, 5, 1), np.uint8)
    seen[1, 2, 3] = 255
    images = obs_image.draw_observations(seen)
    assert len(images) == 3 and images[0].shape == (320, 160, 3)
    assert images[1][2 * 32 + 5, 3 * 32 + 5].tolist() == [255] * 3
    assert images[1].mean() == np.float64(255 / 50) and images[0].max() == 0


def test_vectors_are_drawn_as_bars_on_one_scale():
    seen = {"a": np.array([[1.0, -2.0], [np.nan, 0.0]]), "b": np.array([[4], [0]])}
    first, second = obs_image.draw_observations(seen)

    def height(image, column):
        colours = image[:, int((column + 0.5) * 320 / 3)].astype(int)
        return (np.ptp(colours, axis=-1) > 40).sum()

    heights = [height(first, i) for i in range(3)]
    np.testing.assert_allclose(heights, [36, 72, 144], atol=3)
    assert max(height(second, i) for i in range(3)) <= 2
