// SPDX-License-Identifier: Apache-2.0
#include "engine/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace kvern {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 14> names = {
    "store",         "staging_mib",      "gpu_staging_mib",  "chunk_tokens", "lookup_wait_us", "lookup_deadline_ms",
    "load_stall_ms", "min_tokens",       "min_free_percent", "model_id",     "tenant",         "on_reset",
    "mode",          "allow_fail_policy"};

// Reads known options out of the object; the first thing that is wrong stays as the error.
class Reader {
  public:
    explicit Reader(const json& object) : object_(object) {}

    void text(std::string_view name, std::string& value) {
        if (const json* found = find(name)) {
            if (found->is_string())
                value = found->get<std::string>();
            else
                wrong(name, *found, "a text");
        }
    }
    template <class Number>
    void number(std::string_view name, Number& value, std::uint64_t min, std::uint64_t max) {
        const json* found = find(name);
        if (!found) return;
        if (!found->is_number_unsigned() || found->get<std::uint64_t>() < min || found->get<std::uint64_t>() > max)
            return wrong(name, *found, fmt::format("a whole number from {} to {}", min, max));
        value = static_cast<Number>(found->get<std::uint64_t>());
    }
    void flag(std::string_view name, bool& value) {
        if (const json* found = find(name)) {
            if (found->is_boolean())
                value = found->get<bool>();
            else
                wrong(name, *found, "true or false");
        }
    }
    // One of a few words; returns its position, or `fallback`.
    template <std::size_t N>
    std::size_t word(std::string_view name, const std::array<std::string_view, N>& words, std::size_t fallback) {
        const json* found = find(name);
        if (!found) return fallback;
        const std::string given = found->is_string() ? found->get<std::string>() : found->dump();
        const auto at = std::find(words.begin(), words.end(), given);
        if (at != words.end()) return static_cast<std::size_t>(at - words.begin());
        if (error_.empty())
            error_ = fmt::format("option {}: '{}' is not one of {}{}", name, given, fmt::join(words, ", "),
                                 suggestion(given, words));
        return fallback;
    }
    const std::string& error() const { return error_; }

  private:
    const json* find(std::string_view name) const {
        const auto found = object_.find(std::string(name));
        return found == object_.end() || found->is_null() ? nullptr : &*found;
    }
    void wrong(std::string_view name, const json& value, std::string_view wanted) {
        if (error_.empty()) error_ = fmt::format("option {}: {} is not {}", name, value.dump(), wanted);
    }
    const json& object_;
    std::string error_;
};

}  // namespace

Result<Options> Options::parse(std::string_view text) {
    if (json_deeper_than(text, limits::json_depth_max))
        return fail(ErrorCode::invalid_argument,
                    "kv_connector_extra_config: options are plain values, not nested ones");
    const json object = json::parse(text, nullptr, false);
    if (!object.is_object()) return fail(ErrorCode::invalid_argument, "kv_connector_extra_config is not a JSON object");
    for (const auto& [name, value] : object.items())
        if (std::find(names.begin(), names.end(), name) == names.end())
            return fail(ErrorCode::invalid_argument,
                        fmt::format("option {}: there is no such option{}", name, suggestion(name, names)));
    Options options;
    Reader reader(object);
    reader.text("store", options.store);
    reader.number("staging_mib", options.staging_mib, 1, std::uint64_t{1} << 24);
    reader.number("gpu_staging_mib", options.gpu_staging_mib, 1, std::uint64_t{1} << 20);
    reader.number("chunk_tokens", options.chunk_tokens, 1, 1 << 20);
    reader.number("lookup_wait_us", options.lookup_wait_us, 0, 1000 * 1000);
    reader.number("lookup_deadline_ms", options.lookup_deadline_ms, 1, 60 * 1000);
    reader.number("load_stall_ms", options.load_stall_ms, 1, 600 * 1000);
    reader.number("min_tokens", options.min_tokens, 0, 1 << 30);
    reader.number("min_free_percent", options.min_free_percent, 0, 99);
    reader.text("model_id", options.model_id);
    reader.text("tenant", options.tenant);
    options.epoch_on_reset = reader.word("on_reset", std::array<std::string_view, 2>{"epoch", "keep"}, 0) == 0;
    options.mode = static_cast<Mode>(
        reader.word("mode", std::array<std::string_view, 3>{"read_write", "read_only", "write_only"}, 0));
    reader.flag("allow_fail_policy", options.allow_fail_policy);
    if (!reader.error().empty()) return fail(ErrorCode::invalid_argument, reader.error());
    if (options.store.empty())
        return fail(ErrorCode::invalid_argument, "option store: it is missing; give a URI such as \"file:///mnt/kv\"");
    return options;
}

std::uint32_t default_chunk_tokens(const ChunkBasis& basis) {
    if (basis.has_state) return basis.block_tokens;
    const std::uint64_t wanted = limits::chunk_bytes_target / std::max<std::uint64_t>(1, basis.bytes_per_token);
    const std::uint64_t tokens = std::clamp<std::uint64_t>(wanted, limits::chunk_tokens_min, limits::chunk_tokens_max);
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, tokens / basis.block_tokens) * basis.block_tokens);
}

Result<std::uint32_t> resolve_chunk_tokens(const Options& options, const ChunkBasis& basis) {
    if (options.chunk_tokens == 0) return default_chunk_tokens(basis);
    if (options.chunk_tokens % basis.block_tokens != 0) {
        const std::uint32_t below = std::max(1u, options.chunk_tokens / basis.block_tokens) * basis.block_tokens;
        return fail(
            ErrorCode::invalid_argument,
            fmt::format("option chunk_tokens: {} is no multiple of the engine's block of {} tokens; use {} or {}",
                        options.chunk_tokens, basis.block_tokens, below, below + basis.block_tokens));
    }
    return options.chunk_tokens;
}

}  // namespace kvern
