// SPDX-License-Identifier: Apache-2.0
#include "cache/identity.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "kvern/limits.h"

namespace kvern {
namespace {

using nlohmann::json;

// One table for both directions, so that a field can't be written and not read.
template <class Self, class Text>
void text_fields(Self& self, Text&& text) {
    text("engine", self.engine);
    text("engine_version", self.engine_version);
    text("model", self.model);
    text("kv_dtype", self.kv_dtype);
    text("hash_algorithm", self.hash_algorithm);
    text("hash_seed", self.hash_seed);
    text("parallel", self.parallel);
    text("lora", self.lora);
    text("tenant", self.tenant);
    text("epoch", self.epoch);
}

template <class Self, class Text, class Number>
void group_fields(Self& group, Text&& text, Number&& number) {
    text("kind", group.kind);
    text("layer_numbers", group.layer_numbers);
    text("dtype", group.dtype);
    text("layout", group.layout);
    text("backend", group.backend);
    number("layers", group.layers);
    number("kv_heads", group.kv_heads);
    number("head_size", group.head_size);
    number("head_size_v", group.head_size_v);
    number("block_tokens", group.block_tokens);
    number("window_tokens", group.window_tokens);
}

// Takes keys out of an object and remembers the first thing that was wrong.
class Reader {
  public:
    Reader(json object, std::string where) : object_(std::move(object)), where_(std::move(where)) {
        if (object_.is_object()) return;
        error_ = fmt::format("{}: not a JSON object", where_);
        object_ = json::object();
    }
    void text(const char* key, std::string& value) {
        if (const json* found = take(key, &json::is_string, "a string")) value = found->get<std::string>();
        object_.erase(key);
    }
    void number(const char* key, std::uint32_t& value) {
        if (const json* found = take(key, &json::is_number_unsigned, "a whole number")) {
            const auto wide = found->get<std::uint64_t>();
            if (wide > 0xffffffffu && error_.empty()) error_ = fmt::format("{}: '{}' is too large", where_, key);
            value = static_cast<std::uint32_t>(wide);
        }
        object_.erase(key);
    }
    json list(const char* key) {
        json result = json::array();
        if (const json* found = take(key, &json::is_array, "a list")) result = *found;
        object_.erase(key);
        return result;
    }
    std::string finish() const {
        if (error_.empty() && !object_.empty())
            return fmt::format("{}: unknown key '{}'", where_, object_.begin().key());
        return error_;
    }

  private:
    const json* take(const char* key, bool (json::*is)() const, const char* kind) {
        if (!error_.empty()) return nullptr;
        const auto found = object_.find(key);
        if (found == object_.end()) {
            error_ = fmt::format("{}: key '{}' is missing", where_, key);
        } else if (!((*found).*is)()) {
            error_ = fmt::format("{}: '{}' is not {}", where_, key, kind);
        } else {
            return &*found;
        }
        return nullptr;
    }
    json object_;
    std::string where_, error_;
};

}  // namespace

std::string Identity::to_json() const {
    json object{{"format", format_version}, {"chunk_tokens", chunk_tokens}, {"groups", json::array()}};
    text_fields(*this, [&](const char* key, const std::string& value) { object[key] = value; });
    for (const GroupIdentity& group : groups) {
        json entry = json::object();
        const auto set = [&](const char* key, const auto& value) { entry[key] = value; };
        group_fields(group, set, set);
        object["groups"].push_back(std::move(entry));
    }
    // nlohmann's objects are sorted by key. Text that is not UTF-8 is replaced: it can only make identities differ less
    // than their inputs where a caller passes broken text, and the connector passes none.
    return object.dump(-1, ' ', true, json::error_handler_t::replace);
}

Result<Identity> Identity::from_json(std::string_view text) {
    if (text.size() > limits::identity_bytes_max)
        return fail(ErrorCode::corrupt, fmt::format("identity: {} bytes are more than the limit", text.size()));
    if (json_deeper_than(text, limits::json_depth_max))
        return fail(ErrorCode::corrupt, fmt::format("identity: nested deeper than {} levels", limits::json_depth_max));
    const json parsed = json::parse(text, nullptr, false);
    if (parsed.is_discarded()) return fail(ErrorCode::corrupt, "identity: not JSON");
    Identity identity;
    Reader reader(parsed, "identity");
    std::uint32_t format = format_version;
    reader.number("format", format);
    if (format != format_version)
        return fail(
            ErrorCode::not_supported,
            fmt::format("identity: format {} is not {}; another version of Kvern wrote it", format, format_version));
    reader.number("chunk_tokens", identity.chunk_tokens);
    text_fields(identity, [&](const char* key, std::string& value) { reader.text(key, value); });
    for (const json& entry : reader.list("groups")) {
        GroupIdentity group;
        Reader group_reader(entry, "identity: group");
        group_fields(
            group, [&](const char* key, std::string& value) { group_reader.text(key, value); },
            [&](const char* key, std::uint32_t& value) { group_reader.number(key, value); });
        if (const auto error = group_reader.finish(); !error.empty()) return fail(ErrorCode::corrupt, error);
        identity.groups.push_back(std::move(group));
    }
    if (const auto error = reader.finish(); !error.empty()) return fail(ErrorCode::corrupt, error);
    return identity;
}

Digest namespace_of(std::string_view identity_json) {
    return sha256(identity_json);
}

}  // namespace kvern
