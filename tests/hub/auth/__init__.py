"""Who may do what with which features of which space."""
