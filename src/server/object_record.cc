// SPDX-License-Identifier: Apache-2.0
#include "server/object_record.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "kvern/limits.h"

namespace kvern::server {
namespace {

constexpr std::string_view magic = "KvS3";
constexpr std::uint8_t version = 1;
constexpr std::size_t sum_bytes = 4;

// Each field: one byte of name, length, bytes. Numbers are little-endian base 128.
enum class Field : std::uint8_t {
    size = 1,
    written,
    etag,
    content_type,
    header,
    algorithm,
    checksum,
    composite,
    block_bytes,
    block_sums,
    part,
    tail_bytes,
    tail_sum,
    upload
};

void append_number(std::string& to, std::uint64_t value) {
    for (; value >= 128; value >>= 7) to += static_cast<char>(value | 128);
    to += static_cast<char>(value);
}

void append_text(std::string& to, std::string_view text) {
    append_number(to, text.size());
    to += text;
}

void append_field(std::string& to, Field field, std::string_view bytes) {
    to += static_cast<char>(field);
    append_text(to, bytes);
}

void append_field(std::string& to, Field field, std::uint64_t value) {
    std::string bytes;
    append_number(bytes, value);
    append_field(to, field, bytes);
}

std::string sums_text(const std::vector<std::uint32_t>& sums) {
    std::string bytes;
    bytes.reserve(sums.size() * sum_bytes);
    for (const auto sum : sums) {
        for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(sum >> shift);
    }
    return bytes;
}

std::string part_text(const PartRecord& part) {
    std::string bytes;
    append_number(bytes, part.size_bytes);
    append_text(bytes, part.checksum);
    return bytes;
}

void append_bulk(std::string& to, const ObjectRecord& record) {
    append_field(to, Field::block_sums, sums_text(record.block_sums));
    for (const auto& part : record.parts) append_field(to, Field::part, part_text(part));
}

// Reads what the functions above wrote; `ok` turns false at the first thing that is not so.
class Reader {
  public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}
    bool ok() const { return ok_; }
    bool ended() const { return bytes_.empty() || !ok_; }
    std::uint64_t number() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (bytes_.empty()) break;
            const auto byte = static_cast<std::uint8_t>(bytes_.front());
            bytes_.remove_prefix(1);
            value |= std::uint64_t{byte & 127U} << shift;
            if (byte < 128) return value;
        }
        ok_ = false;
        return 0;
    }
    std::string_view text() {
        const auto size = number();
        if (size > bytes_.size()) ok_ = false;
        const auto text = bytes_.substr(0, ok_ ? size : 0);
        bytes_.remove_prefix(text.size());
        return text;
    }
    std::uint8_t byte() {
        if (bytes_.empty()) {
            ok_ = false;
            return 0;
        }
        const auto value = static_cast<std::uint8_t>(bytes_.front());
        bytes_.remove_prefix(1);
        return value;
    }

  private:
    std::string_view bytes_;
    bool ok_ = true;
};

std::vector<std::uint32_t> sums_of(std::string_view bytes) {
    std::vector<std::uint32_t> sums(bytes.size() / sum_bytes);
    for (std::size_t i = 0; i < sums.size(); ++i) {
        for (std::size_t b = 0; b < sum_bytes; ++b) {
            sums[i] |= std::uint32_t{static_cast<std::uint8_t>(bytes[i * sum_bytes + b])} << (8 * b);
        }
    }
    return sums;
}

bool take_field(ObjectRecord& record, Field field, std::string_view bytes) {
    Reader inner(bytes);
    switch (field) {
        case Field::size:
            record.size_bytes = inner.number();
            break;
        case Field::written:
            record.written_ns = std::bit_cast<std::int64_t>(inner.number());
            break;
        case Field::etag:
            record.etag = bytes;
            return true;
        case Field::content_type:
            record.content_type = bytes;
            return true;
        case Field::header: {
            const auto name = inner.text();
            const auto value = inner.text();
            record.headers.emplace_back(name, value);
            break;
        }
        case Field::algorithm: {
            const auto algorithm = http::parse_checksum_algorithm(bytes);
            if (!algorithm) return false;
            record.algorithm = *algorithm;
            return true;
        }
        case Field::checksum:
            record.checksum = bytes;
            return true;
        case Field::composite:
            record.composite = inner.number() != 0;
            break;
        case Field::block_bytes:
            record.block_bytes = static_cast<std::uint32_t>(inner.number());
            break;
        case Field::block_sums:
            record.block_sums = sums_of(bytes);
            return bytes.size() % sum_bytes == 0;
        case Field::part: {
            PartRecord part;
            part.size_bytes = inner.number();
            part.checksum = inner.text();
            record.parts.push_back(std::move(part));
            break;
        }
        case Field::tail_bytes:
            record.tail_bytes = inner.number();
            break;
        case Field::upload:
            record.upload = bytes;
            return true;
        case Field::tail_sum:
            record.tail_sum = static_cast<std::uint32_t>(inner.number());
            break;
        default:
            return false;
    }
    return inner.ok() && inner.ended();
}

bool take_fields(ObjectRecord& record, std::string_view bytes) {
    Reader reader(bytes);
    while (!reader.ended()) {
        const auto field = static_cast<Field>(reader.byte());
        const auto text = reader.text();
        if (!reader.ok() || !take_field(record, field, text)) return false;
    }
    return reader.ok();
}

std::uint64_t blocks_of(const ObjectRecord& record) {
    return record.block_bytes == 0 ? 0 : (record.size_bytes + record.block_bytes - 1) / record.block_bytes;
}

}  // namespace

std::uint32_t block_bytes_for(std::uint64_t size_bytes) {
    std::uint64_t block = limits::object_block_bytes_min;
    while (block < limits::object_block_bytes_max && size_bytes / block >= limits::object_blocks_wanted_max) block *= 2;
    return static_cast<std::uint32_t>(block);
}

std::string split_tail(ObjectRecord& record) {
    std::string bulk;
    append_bulk(bulk, record);
    if (bulk.size() <= limits::object_bulk_inline_bytes_max) return {};
    record.block_sums.clear();
    record.parts.clear();
    record.tail_bytes = bulk.size();
    record.tail_sum = crc32c(0, bulk.data(), bulk.size());
    return bulk;
}

Result<void> join_tail(ObjectRecord& record, std::span<const std::byte> tail) {
    const std::string_view text(reinterpret_cast<const char*>(tail.data()), tail.size());
    const bool holds = tail.size() == record.tail_bytes && crc32c(0, tail.data(), tail.size()) == record.tail_sum &&
                       take_fields(record, text) && record.block_sums.size() == blocks_of(record);
    if (!holds) return fail(ErrorCode::corrupt, "the sums that follow the object's bytes are damaged");
    return {};
}

std::string encode(const ObjectRecord& record) {
    std::string bytes(magic);
    bytes += static_cast<char>(version);
    append_field(bytes, Field::size, record.size_bytes);
    append_field(bytes, Field::written, std::bit_cast<std::uint64_t>(record.written_ns));
    append_field(bytes, Field::etag, record.etag);
    if (!record.content_type.empty()) append_field(bytes, Field::content_type, record.content_type);
    for (const auto& [name, value] : record.headers) {
        std::string header;
        append_text(header, name);
        append_text(header, value);
        append_field(bytes, Field::header, header);
    }
    if (record.algorithm) append_field(bytes, Field::algorithm, http::to_string(*record.algorithm));
    if (!record.checksum.empty()) append_field(bytes, Field::checksum, record.checksum);
    if (record.composite) append_field(bytes, Field::composite, 1);
    if (!record.upload.empty()) append_field(bytes, Field::upload, record.upload);
    append_field(bytes, Field::block_bytes, record.block_bytes);
    if (record.tail_bytes > 0) {
        append_field(bytes, Field::tail_bytes, record.tail_bytes);
        append_field(bytes, Field::tail_sum, record.tail_sum);
    } else {
        append_bulk(bytes, record);
    }
    bytes += sums_text({crc32c(0, bytes.data(), bytes.size())});
    return bytes;
}

Result<ObjectRecord> decode_record(std::string_view bytes) {
    const auto damaged = fail(ErrorCode::corrupt, "no record of an object of this server");
    if (bytes.size() < magic.size() + 1 + sum_bytes || !bytes.starts_with(magic)) return damaged;
    const auto body = bytes.substr(0, bytes.size() - sum_bytes);
    if (sums_of(bytes.substr(body.size())).front() != crc32c(0, body.data(), body.size())) return damaged;
    if (static_cast<std::uint8_t>(bytes[magic.size()]) != version) {
        return fail(ErrorCode::corrupt, "a record of another version of this server");
    }
    ObjectRecord record;
    if (!take_fields(record, body.substr(magic.size() + 1))) return damaged;
    const bool sums_fit = record.tail_bytes > 0 || record.block_sums.size() == blocks_of(record);
    if (!sums_fit || record.block_bytes == 0) return damaged;
    return record;
}

void BlockSummer::update(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const auto part = std::min<std::size_t>(bytes.size(), block_bytes_ - filled_);
        sum_ = crc32c(sum_, bytes.data(), part);
        filled_ += static_cast<std::uint32_t>(part);
        bytes = bytes.subspan(part);
        if (filled_ == block_bytes_) {
            sums_.push_back(sum_);
            sum_ = filled_ = 0;
        }
    }
}

std::vector<std::uint32_t> BlockSummer::finish() {
    if (filled_ > 0) sums_.push_back(sum_);
    sum_ = filled_ = 0;
    return std::move(sums_);
}

bool blocks_hold(const ObjectRecord& record, std::uint64_t first, std::span<const std::byte> bytes) {
    for (auto block = first; !bytes.empty(); ++block) {
        const auto part = bytes.first(std::min<std::size_t>(bytes.size(), record.block_bytes));
        const bool last = block + 1 == record.block_sums.size();
        const auto whole = last ? record.size_bytes - block * record.block_bytes : record.block_bytes;
        if (block >= record.block_sums.size() || part.size() != whole) return false;
        if (crc32c(0, part.data(), part.size()) != record.block_sums[block]) return false;
        bytes = bytes.subspan(part.size());
    }
    return true;
}

}  // namespace kvern::server
