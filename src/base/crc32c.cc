// SPDX-License-Identifier: Apache-2.0
// Chooses the CRC32C implementation for this CPU, once.
#include "base/crc32c.h"

#include <array>

#include "base/crc32c_path.h"
#include "base/crc_polynomial.h"

namespace kvern {
namespace {

#if defined(__x86_64__)
constexpr std::array<const crc::Path*, 3> paths{&crc::vpclmulqdq_path, &crc::sse42_path, &crc::table_path};
#else
constexpr std::array<const crc::Path*, 1> paths{&crc::table_path};
#endif

const crc::Path& chosen() {
    static const crc::Path* const path = [] {
        for (const crc::Path* candidate : paths) {
            if (candidate->available()) return candidate;
        }
        return &crc::table_path;
    }();
    return *path;
}

const crc::Path* find(std::string_view name) {
    for (const crc::Path* candidate : paths) {
        if (candidate->name == name) return candidate->available() ? candidate : nullptr;
    }
    return nullptr;
}

std::uint32_t sum(const crc::Path& path, std::uint32_t crc, const void* data, std::size_t size_bytes) {
    return ~path.sum(~crc, static_cast<const std::byte*>(data), size_bytes);
}

std::uint32_t copy(const crc::Path& path, std::uint32_t crc, void* destination, const void* source,
                   std::size_t size_bytes) {
    if (size_bytes == 0) return crc;  // then both may be null
    return ~path.copy(~crc, static_cast<std::byte*>(destination), static_cast<const std::byte*>(source), size_bytes);
}

}  // namespace

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size_bytes) {
    return sum(chosen(), crc, data, size_bytes);
}

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
    return crc::Modulo<std::uint32_t, crc::polynomial>::combine(first, second, second_bytes);
}

std::uint32_t copy_crc32c(std::uint32_t crc, void* destination, const void* source, std::size_t size_bytes) {
    return copy(chosen(), crc, destination, source, size_bytes);
}

std::string_view crc32c_path() {
    return chosen().name;
}

bool crc32c_with(std::string_view path, std::uint32_t& crc, const void* data, std::size_t size_bytes) {
    const crc::Path* const found = find(path);
    if (found == nullptr) return false;
    crc = sum(*found, crc, data, size_bytes);
    return true;
}

bool copy_crc32c_with(std::string_view path, std::uint32_t& crc, void* destination, const void* source,
                      std::size_t size_bytes) {
    const crc::Path* const found = find(path);
    if (found == nullptr) return false;
    crc = copy(*found, crc, destination, source, size_bytes);
    return true;
}

}  // namespace kvern
