// SPDX-License-Identifier: Apache-2.0
#include "base/crc32.h"

#include "base/crc_fold.h"

namespace kvern {
namespace {

using Polynomial = crc::Modulo<std::uint32_t, 0xEDB88320>;

std::uint32_t sum(const crc::SumPath<std::uint32_t>& path, std::uint32_t crc, const void* data,
                  std::size_t size_bytes) {
    return ~path.sum(~crc, static_cast<const std::byte*>(data), size_bytes);
}

}  // namespace

std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size_bytes) {
    return sum(crc::chosen_path<Polynomial>(), crc, data, size_bytes);
}

std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
    return Polynomial::combine(first, second, second_bytes);
}

std::string_view crc32_path() {
    return crc::chosen_path<Polynomial>().name;
}

bool crc32_with(std::string_view path, std::uint32_t& crc, const void* data, std::size_t size_bytes) {
    const auto* const found = crc::find_path<Polynomial>(path);
    if (found == nullptr) return false;
    crc = sum(*found, crc, data, size_bytes);
    return true;
}

}  // namespace kvern
