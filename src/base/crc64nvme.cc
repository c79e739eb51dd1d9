// SPDX-License-Identifier: Apache-2.0
#include "base/crc64nvme.h"

#include "base/crc_fold.h"

namespace kvern {
namespace {

using Polynomial = crc::Modulo<std::uint64_t, 0x9A6C9329AC4BC9B5>;

std::uint64_t sum(const crc::SumPath<std::uint64_t>& path, std::uint64_t crc, const void* data,
                  std::size_t size_bytes) {
    return ~path.sum(~crc, static_cast<const std::byte*>(data), size_bytes);
}

}  // namespace

std::uint64_t crc64nvme(std::uint64_t crc, const void* data, std::size_t size_bytes) {
    return sum(crc::chosen_path<Polynomial>(), crc, data, size_bytes);
}

std::uint64_t crc64nvme_combine(std::uint64_t first, std::uint64_t second, std::uint64_t second_bytes) {
    return Polynomial::combine(first, second, second_bytes);
}

std::string_view crc64nvme_path() {
    return crc::chosen_path<Polynomial>().name;
}

bool crc64nvme_with(std::string_view path, std::uint64_t& crc, const void* data, std::size_t size_bytes) {
    const auto* const found = crc::find_path<Polynomial>(path);
    if (found == nullptr) return false;
    crc = sum(*found, crc, data, size_bytes);
    return true;
}

}  // namespace kvern
