# SPDX-License-Identifier: Apache-2.0
"""Small random models for tests, demo and benches: written to a folder in a second, without network."""
