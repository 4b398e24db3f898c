module weft/interop/tls

go 1.26.0
