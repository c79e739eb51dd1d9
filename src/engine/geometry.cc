// SPDX-License-Identifier: Apache-2.0
#include "engine/geometry.h"

#include <nlohmann/json.hpp>

namespace kvern {

using nlohmann::json;

std::string Geometry::to_json() const {
    return json{{"rank", rank},
                {"shard", {shard.first_layer, shard.last_layer, shard.first_head, shard.last_head}},
                {"block_tokens", block_tokens},
                {"chunk_tokens", chunk_tokens},
                {"num_blocks", num_blocks},
                {"page_bytes", page_bytes},
                {"identity", identity},
                {"nonce", nonce}}
        .dump();
}

Result<Geometry> Geometry::from_json(std::string_view text) {
    Geometry geometry;
    try {  // nlohmann's typed access throws; nothing of it leaves this function
        const json object = json::parse(text);
        object.at("rank").get_to(geometry.rank);
        const json& shard = object.at("shard");
        geometry.shard = {shard.at(0), shard.at(1), shard.at(2), shard.at(3)};
        object.at("block_tokens").get_to(geometry.block_tokens);
        object.at("chunk_tokens").get_to(geometry.chunk_tokens);
        object.at("num_blocks").get_to(geometry.num_blocks);
        object.at("page_bytes").get_to(geometry.page_bytes);
        object.at("identity").get_to(geometry.identity);
        object.at("nonce").get_to(geometry.nonce);
    } catch (const json::exception& error) {
        return fail(ErrorCode::internal, std::string("a worker's geometry can't be read: ") + error.what());
    }
    return geometry;
}

}  // namespace kvern
