# SPDX-License-Identifier: Apache-2.0
"""Makes "kv_connector": "KvernConnector" known to vLLM by name, as MultiConnector needs it for its children."""


def register() -> None:
    """Called by vLLM in each of its processes, once or more."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if "KvernConnector" not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector("KvernConnector", "kvern.vllm", "KvernConnector")
