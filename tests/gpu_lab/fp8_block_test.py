"""The part of `pytorch fp8` that needs no GPU."""

import unittest

from gpu_lab.pytorch import fp8_block


class Flops(unittest.TestCase):
    """FLOP of a block."""

    def test_a_block_counts_gemms_and_half_of_attention(self):
        tokens, parameters = 8192, 218_103_808  # of Llama-3-8B's blocks, without norms
        gemms, attention = 6 * tokens * parameters, 12 * tokens * tokens * 4096 // 2
        self.assertEqual(fp8_block.block_flops(tokens), gemms + attention)
        self.assertAlmostEqual(32 * gemms / 1e12, 343.0, places=1)


if __name__ == "__main__":
    unittest.main()
