// SPDX-License-Identifier: Apache-2.0
#include "engine/geometry.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "kvern/limits.h"

namespace kvern {
namespace {

using nlohmann::json;

json to_json(const GroupGeometry& group) {
    return {
        {"kind", to_string(group.plan.kind)},
        {"block_tokens", group.plan.block_tokens},
        {"chunk_tokens", group.plan.chunk_tokens},
        {"window_tokens", group.plan.window_tokens},
        {"shard", {group.shard.first_layer, group.shard.last_layer, group.shard.first_head, group.shard.last_head}}};
}

// Throws json::exception.
GroupGeometry group_from(const json& object) {
    GroupGeometry group;
    const auto kind = group_kind(object.at("kind").get<std::string>());
    if (!kind) throw json::other_error::create(501, "no such kind of group", &object);
    group.plan.kind = *kind;
    object.at("block_tokens").get_to(group.plan.block_tokens);
    object.at("chunk_tokens").get_to(group.plan.chunk_tokens);
    object.at("window_tokens").get_to(group.plan.window_tokens);
    const json& shard = object.at("shard");
    group.shard = {shard.at(0), shard.at(1), shard.at(2), shard.at(3)};
    return group;
}

}  // namespace

std::string Geometry::to_json() const {
    json list = json::array();
    for (const GroupGeometry& group : groups) list.push_back(kvern::to_json(group));
    return json{{"rank", rank}, {"groups", list}, {"num_blocks", num_blocks}, {"identity", identity}, {"nonce", nonce}}
        .dump(-1, ' ', false, json::error_handler_t::replace);  // the nonce is whatever bytes the store gave
}

Result<Geometry> Geometry::from_json(std::string_view text) {
    if (json_deeper_than(text, limits::json_depth_max))
        return fail(ErrorCode::internal, "a worker's geometry can't be read: it is nested too deep");
    Geometry geometry;
    try {  // nlohmann's typed access throws; nothing of it leaves this function
        const json object = json::parse(text);
        object.at("rank").get_to(geometry.rank);
        for (const json& group : object.at("groups")) geometry.groups.push_back(group_from(group));
        object.at("num_blocks").get_to(geometry.num_blocks);
        object.at("identity").get_to(geometry.identity);
        object.at("nonce").get_to(geometry.nonce);
    } catch (const json::exception& error) {
        return fail(ErrorCode::internal, std::string("a worker's geometry can't be read: ") + error.what());
    }
    return geometry;
}

}  // namespace kvern
