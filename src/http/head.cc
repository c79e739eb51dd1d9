// SPDX-License-Identifier: Apache-2.0
#include "http/head.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/status.hpp>
#include <cctype>
#include <cstring>

#include "kvern/limits.h"

namespace kvern::http {
namespace {

namespace beast = boost::beast::http;
using boost::system::error_code;
using Text = boost::beast::string_view;

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_fold(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

// Hands what Beast finds to a Head, copied once into one piece of memory.
template <bool is_request>
class Parser final : public beast::basic_parser<is_request> {
  public:
    Parser(Head& head, std::size_t size_bytes) : head_(head) {
        head_.text = std::make_unique<char[]>(size_bytes);
        end_ = head_.text.get();
        this->header_limit(static_cast<std::uint32_t>(limits::http_head_bytes_max));
        this->body_limit(boost::none);
        head_.headers.reserve(24);
    }

  private:
    std::string_view keep(Text from) {
        auto* const start = end_;
        end_ = std::copy(from.begin(), from.end(), end_);
        return {start, from.size()};
    }

    void on_request_impl(beast::verb, Text method, Text target, int, error_code&) override {
        head_.method = keep(method);
        head_.target = keep(target);
    }
    void on_response_impl(int status, Text, int, error_code&) override { head_.status = static_cast<unsigned>(status); }
    void on_field_impl(beast::field, Text name, Text value, error_code& error) override {
        if (head_.headers.size() == limits::http_headers_max) {
            error = beast::make_error_code(beast::error::header_limit);
            return;
        }
        auto* const start = end_;
        end_ = std::transform(name.begin(), name.end(), end_, lower);
        head_.headers.push_back({{start, name.size()}, keep(value)});
    }
    void on_header_impl(error_code&) override {}
    void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
    std::size_t on_body_impl(Text body, error_code&) override { return body.size(); }
    void on_chunk_header_impl(std::uint64_t, Text, error_code&) override {}
    std::size_t on_chunk_body_impl(std::uint64_t, Text body, error_code&) override { return body.size(); }
    void on_finish_impl(error_code&) override {}

    Head& head_;
    char* end_ = nullptr;
};

template <bool is_request>
Result<Head> parsed(std::span<const std::byte> input) {
    Head head;
    Parser<is_request> parser(head, input.size());
    error_code error;
    parser.put(boost::asio::buffer(input.data(), input.size()), error);
    if (error && error != beast::error::need_more) {
        return fail(ErrorCode::invalid_argument, "malformed HTTP head: " + error.message());
    }
    if (!parser.is_header_done()) return fail(ErrorCode::invalid_argument, "malformed HTTP head: it does not end");
    if (const auto length = parser.content_length()) head.content_length = *length;
    head.chunked = parser.chunked();
    head.keep_alive = parser.keep_alive();
    head.until_close = !is_request && parser.need_eof();
    return head;
}

}  // namespace

std::optional<std::string_view> Head::find(std::string_view name) const {
    for (const auto& header : headers) {
        if (header.name == name) return header.value;
    }
    return std::nullopt;
}

std::optional<std::size_t> head_end(std::span<const std::byte> input, std::size_t& searched) {
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    const auto found = text.find("\r\n\r\n", searched < 3 ? 0 : searched - 3);
    searched = input.size();
    if (found == std::string_view::npos) return std::nullopt;
    return found + 4;
}

Result<Head> parse_head(HeadKind kind, std::span<const std::byte> input) {
    auto head = kind == HeadKind::request ? parsed<true>(input) : parsed<false>(input);
    if (!head) return head;
    // A transfer coding that is not exactly "chunked" would leave the end of the body to guesswork.
    if (const auto coding = head->find("transfer-encoding"); coding && !equal_fold(*coding, "chunked")) {
        return fail(ErrorCode::invalid_argument, "malformed HTTP head: Transfer-Encoding other than chunked");
    }
    if (const auto expect = head->find("expect")) head->expects_continue = equal_fold(*expect, "100-continue");
    return head;
}

bool has_token(std::string_view list, std::string_view word) {
    while (!list.empty()) {
        const auto comma = std::min(list.find(','), list.size());
        auto item = list.substr(0, comma);
        while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
        while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
        if (equal_fold(item, word)) return true;
        list.remove_prefix(std::min(comma + 1, list.size()));
    }
    return false;
}

std::string_view reason_phrase(unsigned status) {
    const auto text = beast::obsolete_reason(static_cast<beast::status>(status));
    return {text.data(), text.size()};
}

}  // namespace kvern::http
