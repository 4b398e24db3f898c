module weft/bench/pushes

go 1.26.0
