// SPDX-License-Identifier: Apache-2.0
#include "keep/catalogue.h"

#include <algorithm>

#include "base/text.h"

namespace kvern {
namespace {

constexpr std::size_t namespace_digits = 64;

// The namespace of a key "<namespace>/<name>", if that is what it is.
std::optional<std::string_view> namespace_of_key(std::string_view key, std::string_view name) {
    if (key.size() != namespace_digits + 1 + name.size() || key[namespace_digits] != '/' || !key.ends_with(name)) {
        return std::nullopt;
    }
    const auto hex = key.substr(0, namespace_digits);
    const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    return std::all_of(hex.begin(), hex.end(), digit) ? std::optional(hex) : std::nullopt;
}

}  // namespace

std::uint64_t etag_digest(std::string_view etag) {
    std::uint64_t value = 0xcbf29ce484222325U;  // FNV-1a
    for (const char c : etag) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return value;
}

void Catalogue::add(const Entry& entry) {
    const auto size_bytes = stored_bytes(entry.size_bytes);
    if (const auto name = parse_object_key(entry.key)) {
        add_object(*name, entry);
    } else if (const auto identity = namespace_of_key(entry.key, "identity.json")) {
        name_space(*identity).identity = entry;
    } else if (const auto label = namespace_of_key(entry.key, "label")) {
        name_space(*label).label = entry;
    } else if (entry.key.starts_with(start_notes_prefix)) {
        start_notes.push_back(entry);
    } else {
        if (foreign.files++ == 0) foreign.example = entry.key;
        foreign.bytes += size_bytes;
        return;
    }
    bytes += size_bytes;
}

void Catalogue::add_object(const ObjectName& name, const Entry& entry) {
    auto& space = name_space(name.namespace_hex);
    const bool same =
        space.chunks > 0 && chunks.back().parent == name.chunk.parent && hash_of(chunks.back()) == name.chunk.hash;
    if (!same) {
        const auto hash = name.chunk.hash.bytes();
        chunks.push_back({name.chunk.parent, hashes.size(), static_cast<std::uint32_t>(hash.size()),
                          static_cast<std::uint32_t>(namespaces.size() - 1), static_cast<std::uint32_t>(objects.size()),
                          0});
        hashes += hash;
        ++space.chunks;
    }
    ++chunks.back().objects;
    objects.push_back({entry.size_bytes, entry.mtime_ns, etag_digest(entry.etag), variant_of(name)});
}

StoredNamespace& Catalogue::name_space(std::string_view hex) {
    if (namespaces.empty() || namespaces.back().hex != hex) {
        namespaces.push_back({std::string(hex), static_cast<std::uint32_t>(chunks.size()), 0, {}, {}});
    }
    return namespaces.back();
}

std::uint32_t Catalogue::variant_of(const ObjectName& name) {
    // Few: the groups and ranks of an engine, in the same order for each chunk.
    const auto same = [&](const Variant& one) { return one.group == name.group && one.shard == name.shard; };
    const auto found = std::find_if(variants.begin(), variants.end(), same);
    const auto index = static_cast<std::uint32_t>(found - variants.begin());
    if (found == variants.end()) variants.push_back({name.group, name.shard});
    return index;
}

ChunkHash Catalogue::hash_of(const StoredChunk& chunk) const {
    return ChunkHash(std::string_view(hashes).substr(chunk.hash_at, chunk.hash_bytes));
}

std::string Catalogue::key_of(const StoredChunk& chunk, const StoredObject& object) const {
    const auto& variant = variants[object.variant];
    return object_key(namespaces[chunk.name_space].hex, ChunkId{hash_of(chunk), chunk.parent}, variant.group,
                      variant.shard.text());
}

std::uint64_t Catalogue::bytes_of(const StoredChunk& chunk) const {
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < chunk.objects; ++i) total += stored_bytes(objects[chunk.first_object + i].size_bytes);
    return total;
}

std::int64_t Catalogue::use_of(const StoredChunk& chunk) const {
    std::int64_t newest = objects[chunk.first_object].mtime_ns;
    for (std::uint32_t i = 1; i < chunk.objects; ++i) {
        newest = std::max(newest, objects[chunk.first_object + i].mtime_ns);
    }
    return newest;
}

Result<Catalogue> read_catalogue(Client& client, const std::string& namespace_prefix, const Listed& listed) {
    Catalogue catalogue;
    std::uint64_t keys = 0;
    Op op;
    op.kind = OpKind::list;
    op.key = namespace_prefix;
    op.limit = limits::list_entries_max;
    for (bool more = true; more;) {
        if (client.stopped()) return fail(ErrorCode::cancelled, "interrupted while the store was listed");
        const auto page = client.call(op);
        if (!page) return tl::unexpected(page.error());
        if (page->status != Status::ok) return fail(page->error.code, explain(op, *page));
        for (const auto& entry : page->entries) catalogue.add(entry);
        keys += page->entries.size();
        if (listed) listed(keys);
        more = page->more && !page->entries.empty();
        if (more) op.after = page->entries.back().key;
    }
    return catalogue;
}

}  // namespace kvern
