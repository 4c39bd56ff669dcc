"""What several losses share: normal tails, averages by quadrature, Polya-gamma variates."""
